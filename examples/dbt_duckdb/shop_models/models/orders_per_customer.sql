SELECT
    customers.id AS customer_id,
    customers.tier,
    count(orders.id) AS orders,
    coalesce(sum(orders.total), 0) AS total,
    max(orders.placed_at) AS last_order_at
FROM {{ source('mirrors', 'customers') }} AS customers
LEFT JOIN {{ source('mirrors', 'orders') }} AS orders ON orders.customer_id = customers.id
GROUP BY ALL

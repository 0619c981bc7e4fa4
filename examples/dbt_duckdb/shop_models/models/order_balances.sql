WITH lines AS (
    SELECT order_id, sum(qty * price) AS total FROM {{ source('mirrors', 'order_items') }} GROUP BY order_id
),
payments AS (
    SELECT order_id, sum(amount) AS total FROM {{ source('mirrors', 'payments') }} GROUP BY order_id
)
SELECT
    orders.id AS order_id,
    orders.customer_id,
    orders.status,
    orders.total,
    coalesce(lines.total, 0) AS total_of_lines,
    coalesce(payments.total, 0) AS paid
FROM {{ source('mirrors', 'orders') }} AS orders
LEFT JOIN lines ON lines.order_id = orders.id
LEFT JOIN payments ON payments.order_id = orders.id

SELECT
    lines.sku,
    products.product_title,
    sum(lines.qty) AS quantity,
    sum(lines.qty * lines.price) AS revenue
FROM {{ source('mirrors', 'order_items') }} AS lines
LEFT JOIN {{ source('mirrors', 'products') }} AS products ON products.sku = lines.sku
GROUP BY ALL

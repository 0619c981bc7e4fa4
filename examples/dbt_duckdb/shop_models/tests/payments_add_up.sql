-- The payments of an order add up to its total, or to 0 if it is new or refunded.
SELECT * FROM {{ ref('order_balances') }} WHERE paid <> CASE WHEN status IN ('new', 'refunded') THEN 0 ELSE total END

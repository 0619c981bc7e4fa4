-- An order and its lines are one transaction upstream, but two mirrors.
SELECT * FROM {{ ref('order_balances') }} WHERE total <> total_of_lines

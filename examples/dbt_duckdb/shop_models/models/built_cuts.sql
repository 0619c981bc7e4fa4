-- depends_on: {{ ref('order_balances') }}, {{ ref('orders_per_customer') }}, {{ ref('revenue_per_product') }}
{{ config(materialized='incremental', unique_key='cut_id') }}

SELECT
    cut_id,
    resolved_tso,
    resolved_time,
    list_transform(mirrors, lambda m: {'database': m.database, 'table': m."table", 'version': m.version}) AS mirrors,
    '{{ invocation_id }}' AS dbt_invocation,
    now() AS built_at
FROM {{ source('lake', 'consistent_cuts') }}

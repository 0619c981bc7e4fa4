{#
  Creates one view per source: each mirror at its Delta version in one cut, and the row of this cut in consistent_cuts.
  The cut is the newest one, or that of `--vars 'cut_id: 7'`. The asset key of a source names its table of the lake.
#}
{% macro pin_cut() %}
  {% if execute and flags.WHICH in ['run', 'build'] %}
    {% set cuts = "delta_scan('" ~ var('lake') ~ "/consistent_cuts')" %}
    {% set cut_id = var('cut_id') or run_query('SELECT max(cut_id) FROM ' ~ cuts).rows[0][0] %}
    {% set cut = 'SELECT * FROM ' ~ cuts ~ ' WHERE cut_id = ' ~ cut_id %}
    {% set versions = {} %}
    {% for row in run_query(
      'SELECT m.database, m."table", m.path, m.version FROM (SELECT unnest(mirrors) AS m FROM (' ~ cut ~ '))'
    ).rows %}
      {% do versions.update({(row[0], row[1]): "'" ~ var('lake') ~ '/' ~ row[2] ~ "', version => " ~ row[3]}) %}
    {% endfor %}
    {% if not versions %}
      {% do exceptions.raise_compiler_error('no cut ' ~ cut_id ~ ' with mirrors in ' ~ cuts ~ ': run the job shop_ingest') %}
    {% endif %}
    {% do log('the sources are the mirrors of cut ' ~ cut_id, info=true) %}

    {% for source in graph.sources.values() %}
      {% set key = source.config.meta.dagster.asset_key %}
      {% if key[1] == 'mirror' %}
        {% if (key[2], key[3]) not in versions %}
          {% do exceptions.raise_compiler_error('cut ' ~ cut_id ~ ' has no mirror ' ~ key[2] ~ '.' ~ key[3]) %}
        {% endif %}
        {% set rows = 'SELECT * FROM delta_scan(' ~ versions[(key[2], key[3])] ~ ')' %}
      {% else %}
        {% set rows = cut %}
      {% endif %}
      {% do run_query('CREATE SCHEMA IF NOT EXISTS ' ~ source.schema) %}
      {% do run_query('CREATE OR REPLACE VIEW ' ~ source.schema ~ '.' ~ source.identifier ~ ' AS ' ~ rows) %}
    {% endfor %}
  {% endif %}
{% endmacro %}

-- The partitions of the archive, each with the times from which and before which its jobs were archived. Called by
-- PostgreSQLArchive, with a condition behind it. Partitions that somebody made by hand count as well.
SELECT * FROM (
    SELECT part.oid::regclass::text AS name, bounds[1]::timestamptz AS since, bounds[2]::timestamptz AS until
      FROM pg_inherits
      JOIN pg_class part ON part.oid = inhrelid
     CROSS JOIN LATERAL regexp_match(pg_get_expr(relpartbound, part.oid), $$FROM \('([^']+)'\) TO \('([^']+)'\)$$) bounds
     WHERE inhparent = 'django_jobs_archivedjob'::regclass
) partition

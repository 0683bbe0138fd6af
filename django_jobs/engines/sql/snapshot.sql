-- Who holds the oldest snapshot that keeps dead rows of this database from being removed. Called by `health`. By the age of
-- the transaction id that it holds back, not of its transaction: one that only sits open holds nothing. Whose other data a
-- user may not see has no times and no state, but its transaction ids. A vacuum (not an ANALYZE) is in nobody's way, and what this
-- package does is short: less than a minute of it is left out. A standby that asks for rows holds back all databases.
SELECT * FROM (
    SELECT 'session' AS kind, date_part('epoch', clock_timestamp() - xact_start) AS seconds, pid,
           coalesce(application_name, '') AS name, coalesce(usename, '') AS usename, coalesce(state, '') AS state,
           coalesce(datname, '') AS datname, greatest(age(backend_xmin), age(backend_xid)) AS held
      FROM pg_stat_activity
     WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
       AND NOT (application_name LIKE 'django\_jobs:%%' AND coalesce(xact_start > clock_timestamp() - interval '1 minute', true))
       AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL
    SELECT 'prepared', date_part('epoch', clock_timestamp() - prepared), NULL, gid, owner, 'prepared', database,
           age(transaction)
      FROM pg_prepared_xacts
     WHERE database = current_database()
    UNION ALL
    SELECT 'slot', NULL, active_pid, slot_name, '', CASE WHEN active THEN 'active' ELSE 'inactive' END,
           coalesce(database, ''), age(xmin)
      FROM pg_replication_slots
) holder
 WHERE held IS NOT NULL
 ORDER BY held DESC, seconds DESC NULLS LAST
 LIMIT 1

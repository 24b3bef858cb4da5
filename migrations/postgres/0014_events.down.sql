DROP TABLE audit_head;
DROP TABLE event;
DROP FUNCTION event_stays();

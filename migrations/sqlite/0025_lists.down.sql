DROP INDEX event_actor_name;
DROP INDEX event_actor;

ALTER TABLE noised_sum
    ALTER COLUMN sum_device TYPE TEXT COLLATE "default",
    ALTER COLUMN unmask_device TYPE TEXT COLLATE "default";
DROP INDEX event_actor_name;
DROP INDEX event_actor;

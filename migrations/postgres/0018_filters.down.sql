DROP INDEX participant_revoked;
DROP INDEX round_state;
DROP INDEX task_status;

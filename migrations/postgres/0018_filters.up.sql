-- Lists that are narrowed down: few tasks or rounds of a state among many, few revoked participants.

CREATE INDEX task_status ON task (status, created_at, id);
CREATE INDEX round_state ON round (task, state, number);
CREATE INDEX participant_revoked ON participant (id) WHERE revoked_at IS NOT NULL;

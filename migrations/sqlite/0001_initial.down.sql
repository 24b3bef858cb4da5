-- Children before parents.
DROP TABLE idempotency_key;
DROP TABLE lease;
DROP TABLE model_version;
DROP TABLE noised_sum;
DROP TABLE partial_sum;
DROP TABLE admitted;
DROP TABLE participation;
DROP TABLE assignment_change;
DROP TABLE assignment;
DROP TABLE round_change;
DROP TABLE round;
DROP TABLE check_in;
DROP TABLE operator_token;
DROP TABLE enrollment_token;
DROP TABLE participant;
DROP TABLE task_change;
DROP TABLE task;

ALTER TABLE operator_token DROP COLUMN tasks;

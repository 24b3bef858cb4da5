ALTER TABLE operator_token DROP COLUMN expires_at;

-- Operator tokens for some tasks alone.
ALTER TABLE operator_token ADD COLUMN tasks TEXT; -- fixed; JSON list of the ids of the tasks that it is for; NULL: for everything

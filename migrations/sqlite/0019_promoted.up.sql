-- Which model version an operator has chosen to be used; its file stays.

ALTER TABLE task ADD COLUMN promoted_version INTEGER CHECK (promoted_version >= 0); -- NULL: none was chosen

-- Which model versions stay stored: the row of each stays, its file may go.

ALTER TABLE model_version ADD COLUMN pinned_at INTEGER;                                -- since when an operator keeps it; NULL: nobody does
ALTER TABLE model_version ADD COLUMN removed_at INTEGER;                               -- fixed once set; since when its file is kept no more
-- The versions that are looked through when a new one is published.
CREATE INDEX model_version_stored ON model_version (task, version) WHERE removed_at IS NULL;

-- A model that an operator uploaded, or a part of one, which is kept for tasks that start from it.
CREATE TABLE model_upload (
    sha256      BLOB NOT NULL PRIMARY KEY CHECK (length(sha256) = 32),      -- fixed
    expires_at  INTEGER NOT NULL
) STRICT;

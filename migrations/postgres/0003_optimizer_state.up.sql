-- What the server optimizer goes on from, beside the model that its step made.

ALTER TABLE model_version ADD COLUMN optimizer_state BYTEA                             -- digest: address of the state; NULL:
    CHECK (length(optimizer_state) = 32);                                              -- nothing is remembered. The blob goes
                                                                                       -- when two newer versions are there

-- Where each model version comes from, signed by the coordinator; written by the transaction that publishes the version.
CREATE TABLE provenance (
    task      BLOB    NOT NULL,                                     -- fixed
    version   INTEGER NOT NULL,                                     -- fixed
    record    TEXT    NOT NULL CHECK (json_valid(record)),          -- the text that was signed; another one once the key was replaced
    signature BLOB    NOT NULL CHECK (length(signature) = 64),      -- Ed25519, by the key that the record names
    PRIMARY KEY (task, version),
    FOREIGN KEY (task, version) REFERENCES model_version (task, version)
) STRICT, WITHOUT ROWID;

ALTER TABLE round ADD COLUMN reported INTEGER NOT NULL DEFAULT 0 CHECK (reported >= 0);
ALTER TABLE round ADD COLUMN bytes_up INTEGER NOT NULL DEFAULT 0 CHECK (bytes_up >= 0);
ALTER TABLE round ADD COLUMN bytes_down INTEGER NOT NULL DEFAULT 0 CHECK (bytes_down >= 0);
UPDATE round SET (reported, bytes_up) =
    (SELECT count(*), coalesce(sum(bytes), 0) FROM admitted
     WHERE (admitted.task, admitted.number, admitted.attempt) = (round.task, round.number, round.attempt));
UPDATE round SET bytes_down =
    (SELECT coalesce(sum(traffic.bytes_down), 0) FROM round_traffic AS traffic
     WHERE (traffic.task, traffic.number, traffic.attempt) = (round.task, round.number, round.attempt));

CREATE TABLE traffic (
    task       BLOB    NOT NULL,
    number     INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    bytes_down INTEGER NOT NULL CHECK (bytes_down >= 0),
    PRIMARY KEY (task, number, attempt, state),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO traffic SELECT task, number, attempt, state, sum(bytes_down) FROM round_traffic GROUP BY task, number, attempt, state;
DROP TABLE round_traffic;
ALTER TABLE traffic RENAME TO round_traffic;

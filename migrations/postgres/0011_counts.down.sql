DROP INDEX assignment_reported;
ALTER TABLE round ADD COLUMN reported BIGINT NOT NULL DEFAULT 0 CHECK (reported >= 0);
ALTER TABLE round ADD COLUMN bytes_up BIGINT NOT NULL DEFAULT 0 CHECK (bytes_up >= 0);
ALTER TABLE round ADD COLUMN bytes_down BIGINT NOT NULL DEFAULT 0 CHECK (bytes_down >= 0);
UPDATE round SET (reported, bytes_up) =
    (SELECT count(*), coalesce(sum(bytes), 0) FROM admitted
     WHERE (admitted.task, admitted.number, admitted.attempt) = (round.task, round.number, round.attempt));
UPDATE round SET bytes_down =
    (SELECT coalesce(sum(traffic.bytes_down), 0) FROM round_traffic AS traffic
     WHERE (traffic.task, traffic.number, traffic.attempt) = (round.task, round.number, round.attempt));

CREATE TABLE traffic (
    task       BYTEA  NOT NULL,
    number     BIGINT NOT NULL,
    attempt    BIGINT NOT NULL,
    state      TEXT   NOT NULL,
    bytes_down BIGINT NOT NULL CHECK (bytes_down >= 0)
);
INSERT INTO traffic SELECT task, number, attempt, state, sum(bytes_down) FROM round_traffic GROUP BY task, number, attempt, state;
DROP TABLE round_traffic;
ALTER TABLE traffic RENAME TO round_traffic;
ALTER TABLE round_traffic ADD PRIMARY KEY (task, number, attempt, state);
ALTER TABLE round_traffic ADD FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt);

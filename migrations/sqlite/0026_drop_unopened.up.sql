-- Participants send inputs of any number of rounds and tasks that start from one model: none proves that a session was never opened.

DROP TABLE abort_statement;
DROP TABLE unopened_session;

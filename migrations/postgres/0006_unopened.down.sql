DROP TABLE abort_statement;
DROP TABLE unopened_session;

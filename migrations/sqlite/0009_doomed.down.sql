DROP TABLE doomed;

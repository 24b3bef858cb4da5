DROP TABLE model_server;

DROP TABLE model_upload;

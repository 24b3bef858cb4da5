DROP TABLE sign_in;

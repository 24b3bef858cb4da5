DROP TABLE used_nonce;

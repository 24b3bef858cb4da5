ALTER TABLE check_in DROP COLUMN batch;
DROP TABLE assignment_batch;
DROP TABLE batch_offer;
DROP TABLE batch_draw;

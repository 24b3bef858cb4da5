DROP TABLE record_below;

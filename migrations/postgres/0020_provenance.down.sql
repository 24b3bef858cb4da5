DROP TABLE provenance;

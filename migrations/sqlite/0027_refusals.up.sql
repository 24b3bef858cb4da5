-- Participants that refuse a task: they are there, and their operator is to see why they are not drawn.

ALTER TABLE check_in ADD COLUMN refusal TEXT;                                            -- code of the reason; NULL: it does not refuse

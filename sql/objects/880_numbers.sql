-- Where the next number is taken by the owner's right. Comes before what has become stale is dropped:
-- the function is one that each installation writes.
DO $numbers$
BEGIN
    {{ own_numbers | trim | indent(4) }}
END
$numbers$;

"""The engine of a sync: lists, copies, applies change events, cuts over. The only writer of the destination.

`coordinator` holds the phases in order. `copy` moves documents, `tail` reads change events and hands them to `lanes`,
`ddl` applies changes of definitions, `cutover` is what commit starts. `standin` and `translate` are pure decisions;
`destination` and `catalog` are the hands.
"""

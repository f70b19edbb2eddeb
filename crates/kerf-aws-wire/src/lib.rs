//! Requests and answers of the AWS calls that Kerf makes: the types, and how they look on the wire. No I/O.

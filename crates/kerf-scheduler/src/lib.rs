//! Placing pods on nodes that exist, on claims in flight and on new claims

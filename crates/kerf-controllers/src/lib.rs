//! The reconcilers of the operator

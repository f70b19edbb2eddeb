//! The live index of the cluster

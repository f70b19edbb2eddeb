//! The rest of a cluster, as independent actors on the API: kubelets, a scheduler, the workload controllers, and the
//! collectors of garbage. Each sees the cluster through watches and changes it through requests, as the real ones do.

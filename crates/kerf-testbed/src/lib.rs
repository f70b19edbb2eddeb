//! A whole Kubernetes cluster in one process, in real or virtual time

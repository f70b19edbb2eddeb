//! A real Kubernetes control plane on loopback, for tests and for trying Kerf

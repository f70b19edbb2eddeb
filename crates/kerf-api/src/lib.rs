//! The karpenter.sh and karpenter.kwok.sh resources as Kubernetes sees them

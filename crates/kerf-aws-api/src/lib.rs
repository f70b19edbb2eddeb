//! The vocabulary of AWS in Kubernetes: EC2NodeClass, its CRD, its hash and the labels of the domain `karpenter.k8s.aws`.

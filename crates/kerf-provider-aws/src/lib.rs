//! The AWS provider: EC2 instances for NodeClaims, and the controllers of their NodeClasses.

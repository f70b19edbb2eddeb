//! The vocabulary of decisions: resources, requirements, taints, instance types, money

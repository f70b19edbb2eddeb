//! The cloud-provider contract and the KWOK provider

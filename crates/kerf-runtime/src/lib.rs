//! What any operator needs and no node knows of: time, queues, leader election, logs, health and metrics endpoints.

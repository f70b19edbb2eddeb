package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// Problem is what both sides get to solve.
type Problem struct {
	InstanceTypes []InstanceType
	Nodes         []*corev1.Node
	// By the name of the node.
	Bound   map[string][]*corev1.Pod
	Pending []*corev1.Pod
}

// InstanceType as the file describes it. A label without values is one that the type must not have.
type InstanceType struct {
	Name      string              `json:"name"`
	Capacity  corev1.ResourceList `json:"capacity"`
	Overhead  corev1.ResourceList `json:"overhead"`
	Labels    map[string][]string `json:"labels"`
	Offerings []Offering          `json:"offerings"`
}

// Offering is one way to buy an instance type.
type Offering struct {
	CapacityType string  `json:"capacityType"`
	Zone         string  `json:"zone"`
	Price        float64 `json:"price"`
}

// readWithTypes reads a problem, and finds upstream's own instance types for it.
func readWithTypes(file string) (*Problem, []*cloudprovider.InstanceType, error) {
	problem, err := readProblem(file)
	if err != nil {
		return nil, nil, err
	}
	instanceTypes, err := catalogue(problem.InstanceTypes)
	return problem, instanceTypes, err
}

// readProblem reads a file with one object per line.
func readProblem(file string) (*Problem, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	problem := &Problem{Bound: map[string][]*corev1.Pod{}}
	decoder := json.NewDecoder(bufio.NewReader(opened))
	for at := 1; ; at++ {
		var line json.RawMessage
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return problem, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, object %d: %w", file, at, err)
		}
		if err := problem.add(line); err != nil {
			return nil, fmt.Errorf("%s, object %d: %w", file, at, err)
		}
	}
}

func (p *Problem) add(line json.RawMessage) error {
	var object struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(line, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "InstanceType":
		var instanceType InstanceType
		if err := json.Unmarshal(line, &instanceType); err != nil {
			return err
		}
		p.InstanceTypes = append(p.InstanceTypes, instanceType)
	case "Node":
		node := &corev1.Node{}
		if err := json.Unmarshal(line, node); err != nil {
			return err
		}
		p.Nodes = append(p.Nodes, node)
	case "Pod":
		pod := &corev1.Pod{}
		if err := json.Unmarshal(line, pod); err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			p.Pending = append(p.Pending, pod)
		} else {
			p.Bound[pod.Spec.NodeName] = append(p.Bound[pod.Spec.NodeName], pod)
		}
	default:
		return fmt.Errorf("%q is not a kind of object that a problem has", object.Kind)
	}
	return nil
}

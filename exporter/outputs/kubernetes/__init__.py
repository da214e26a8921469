"""The Node of this VM in Kubernetes: conditions, annotations, Events, cordon and drain."""

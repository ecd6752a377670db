"""From raw objects of the API to frozen views: parsed once, at the edge.

A parser never raises for what a cluster may hold: a missing field, or one of a wrong type, reads as
its empty value. The one field that users write freely, ``TrainingJob.spec``, reads as None with an
error that names the field.
"""
